"""Behind `moor demo`: a real model, a crash, a sleep, a broken deployment, and nothing left behind."""
