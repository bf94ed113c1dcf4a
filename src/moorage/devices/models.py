"""Short model names, as specs ask for them (`H100`), from what drivers call their products. Pure."""

import re

_BRANDS = frozenset({"nvidia", "amd", "tesla", "geforce", "quadro", "instinct", "radeon", "(tm)", "graphics"})
_FORMS = re.compile(
    r"\d+\s?gi?b|hbm\d\w*|sxm\d*|pcie|oam|nvl|generation|edition|corporation|inc\.?|\[|\]", re.IGNORECASE
)
"""Memory sizes, kinds of memory and of boards: they do not change what a GPU can do, and memory is asked for apart."""


def short_model(name: str) -> str:
    """`NVIDIA A100-SXM4-80GB` → `A100`; a name of nothing else stays as it is."""
    words = [word for word in re.split(r"[\s-]+", name) if word]
    kept = [word for word in words if word.lower() not in _BRANDS and not _FORMS.fullmatch(word)]
    return " ".join(kept) or name
