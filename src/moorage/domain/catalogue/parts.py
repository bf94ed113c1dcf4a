"""Reasons of the parts of one machine (control plane, agent, gateway): why one was started again."""

from moorage.domain.catalogue.entry import failed

ENTRIES = (
    failed(
        "part.hung",
        "The {part} hung: it answered nothing for {silent:duration}, and was ended[ ({how})]",
        "part",
        "silent",
        optional=("how", "log"),
        advice="It is started again by itself, and what runs is not touched. Where its log ends with the stacks of its "
        "threads, they say where it hung: please report them.",
    ),
    failed(
        "part.ended",
        "The {part} {how}",
        "part",
        "how",
        optional=("log",),
        advice="It is started again by itself, and what runs is not touched. Its log says why it ended.",
    ),
)
