"""Work and whatever executes it: who a piece of work is there (`identity`), and what was found beside what was meant
(`drift`). Pure, like everything under `decide`.
"""
