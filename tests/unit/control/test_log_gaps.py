"""What is said of workers whose lines are not among those shown."""

from moorage.control.logtail import NAMED_MAX, _missing
from moorage.domain.errors import Gone
from moorage.domain.nouns import Worker


def lacking(count):
    return [(Worker(uid=f"w{n}", name=f"job-{n}"), Gone(f"the log of job-{n} is gone")) for n in range(count)]


def test_few_workers_without_lines_are_each_named():
    assert [(line.kind, line.worker) for line in _missing(lacking(2))] == [("event", "job-0"), ("event", "job-1")]


def test_many_workers_without_lines_are_counted_in_one_line():
    (line,) = _missing(lacking(NAMED_MAX + 1))
    assert (line.kind, line.worker) == ("event", None)
    assert line.line == f"the log of job-0 is gone, as for {NAMED_MAX} other workers, which are not shown either"
