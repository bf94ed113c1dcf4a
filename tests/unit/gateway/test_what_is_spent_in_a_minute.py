"""A gateway's window forgets nothing early, and a permit takes and gives back what the answer told."""

import random

import pytest

from moorage.gateway.limit_answers import admitted, too_large, used_up
from moorage.gateway.spending import IN_FLIGHT, REQUESTS, TOKENS, Account, Limit, Permit, prompt_tokens
from moorage.gateway.tokens import Tokens
from moorage.gateway.windows import Window


def limit(resource: str, share: int) -> Limit:
    made = Limit("key/k", resource, share, 0.0)
    made.share, made.known_until = share, float("inf")
    return made


@pytest.mark.parametrize("seed", range(20))
def test_a_window_counts_at_least_what_was_added_in_the_last_minute_and_nothing_older_than_a_second_more(
    seed: int,
) -> None:
    draw, window = random.Random(seed), Window()
    now, added = draw.uniform(0.0, 1e6), []
    for _ in range(2000):
        now += draw.choice((0.0, 0.01, 0.4, 1.0, 7.0, 59.9, 60.0, 61.0, 200.0))
        amount = draw.randint(0, 9)
        window.add(amount, now)
        added.append((now, amount))
        used = window.used(now)
        assert used >= sum(n for at, n in added if at >= now - 60.0)
        assert used <= sum(n for at, n in added if at > now - 61.0)


@pytest.mark.parametrize("seed", range(20))
def test_the_time_told_until_there_is_room_is_the_first_at_which_there_is(seed: int) -> None:
    draw, window, now = random.Random(seed), Window(), 1000.0
    for _ in range(30):
        now += draw.uniform(0.0, 3.0)
        window.add(draw.randint(1, 5), now)
    most = draw.randint(0, window.used(now))
    wait_s = window.falls_to_in_s(most, now)
    later = Window.__new__(Window)
    later.amounts, later.oldest, later.total = list(window.amounts), window.oldest, window.total
    if wait_s > 0.001:
        assert later.used(now + wait_s - 0.001) > most
    assert later.used(now + wait_s) <= most


def test_what_is_given_back_in_a_second_that_is_forgotten_changes_nothing() -> None:
    window = Window()
    second = window.add(5, 10.0)
    window.add(3, 80.0)
    window.give_back(5, second)
    assert window.used(80.0) == 3


def test_a_request_is_charged_to_all_of_its_limits_and_settled_by_what_its_answer_told() -> None:
    requests, tokens, running = limit(REQUESTS, 2), limit(TOKENS, 100), limit(IN_FLIGHT, 2)
    account = Account((requests, tokens, running))
    permit = Permit(account, 60, 20, 0.0)
    assert permit.take(5.0)
    assert [of.used(5.0) for of in account.limits] == [1, 60, 1]
    assert account.lacking(60, 5.0) == [tokens]
    permit.settle(6.0, sent=True, failed=False, usage=(10, 20))
    assert [of.used(6.0) for of in account.limits] == [1, 30, 0]


def test_tokens_above_the_reserve_are_taken_when_they_are_known() -> None:
    tokens = limit(TOKENS, 100)
    permit = Permit(Account((tokens,)), 10, 5, 0.0)
    assert permit.take(0.0)
    permit.settle(120.0, sent=True, failed=False, usage=(50, 90))
    assert tokens.used(120.0) == 130  # the reserve of two minutes ago is forgotten
    assert tokens.used(182.0) == 0


@pytest.mark.parametrize(
    ("sent", "failed", "left"),
    [(True, False, (1, 40)), (True, True, (1, 0)), (False, False, (0, 0)), (False, True, (0, 0))],
)
def test_a_request_counts_once_it_was_sent_and_tokens_unless_it_failed(
    sent: bool, failed: bool, left: tuple[int, int]
) -> None:
    requests, tokens = limit(REQUESTS, 5), limit(TOKENS, 100)
    permit = Permit(Account((requests, tokens)), 40, 10, 0.0)
    assert permit.take(0.0)
    permit.settle(1.0, sent=sent, failed=failed, usage=None)
    assert (requests.used(1.0), tokens.used(1.0)) == left


def test_an_account_learns_how_long_its_answers_are() -> None:
    account = Account((limit(TOKENS, 10**6),))
    first = account.usual
    for _ in range(50):
        account.learn(10)
    assert account.usual < first / 10
    account.learn(10**9)
    assert account.usual < 2000  # one long answer does not shut its key out


def test_nothing_is_admitted_once_the_share_is_too_old() -> None:
    requests = limit(REQUESTS, 5)
    requests.known_until = 100.0
    assert not requests.lacks(1, 99.9)
    assert requests.lacks(1, 100.0)
    assert requests.more_may_come(1, 100.0)


@pytest.mark.parametrize(
    ("told", "usage"),
    [
        (None, None),
        (Tokens(None, None), None),
        (Tokens(7, 5), (7, 5)),
        (Tokens(7, None), (7, 0)),
        (Tokens(None, 5, counted=True), (25, 5)),
    ],
)
def test_usage_that_is_half_told_takes_the_prompts_estimate(told: Tokens | None, usage: tuple[int, int] | None) -> None:
    assert Permit(Account(()), 125, prompt_tokens(100), 0.0).usage(told) == usage


def test_a_request_that_can_never_fit_is_told_what_was_assumed_of_it_and_what_to_send() -> None:
    bare, _ = too_large(limit(TOKENS, 100), 271, 256)
    assert "271 tokens (256 of them assumed for its answer, as it sets no max_tokens)" in bare.message
    assert bare.message.endswith("; give a max_tokens, or send less")
    bound, _ = too_large(limit(TOKENS, 100), 271, 0)
    assert "assumed" not in bound.message
    assert bound.message.endswith("; send less, or a lower max_tokens")


def test_a_limit_of_which_something_is_left_is_not_called_used_up() -> None:
    tokens = limit(TOKENS, 100)
    Account((tokens,)).take(78, 1000.0)
    assert used_up(tokens, 50, 1000.0).message.endswith("has 22 left now, and this request may cost 50")
    Account((tokens,)).take(22, 1000.0)
    assert used_up(tokens, 50, 1000.0).message.endswith("is used up")


def remaining(account: Account) -> int:
    """What a client is told that is admitted now."""
    (line,) = [line for line in admitted(account).split(b"\r\n") if line.startswith(b"x-ratelimit-remaining")]
    return int(line.partition(b": ")[2])


@pytest.mark.parametrize("resource", [REQUESTS, TOKENS])
def test_what_is_told_to_be_left_is_within_a_limit_that_was_lowered_just_now(resource: str) -> None:
    lowered = limit(resource, 100)
    account = Account((lowered,))
    assert account.take(1, 1000.2)
    lowered.set_most(10)
    assert account.take(1, 1000.4), "in the same second, of which all was known before"
    assert remaining(account) == 8
    assert lowered.share == 10


@pytest.mark.parametrize("resource", [REQUESTS, TOKENS, IN_FLIGHT])
def test_no_more_than_a_lowered_limit_is_admitted_before_the_ledger_answers(resource: str) -> None:
    lowered = limit(resource, 100)
    account = Account((lowered,))
    assert [account.take(1, 1000.0) for _ in range(7)] == [True] * 7
    lowered.set_most(10)
    assert sum(account.take(1, 1000.5) for _ in range(100)) == 3
    lowered.set_most(100)
    assert not account.take(1, 1000.6), "it rises by the ledger alone, which may have given the rest to others"


@pytest.mark.parametrize(("share", "part"), [(100, 10), (60, 6), (39, 3), (9, 0), (0, 0)])
def test_a_share_of_a_lowered_limit_is_the_same_part_of_it_so_that_all_together_are_within_it(
    share: int, part: int
) -> None:
    lowered = Limit("key/k", REQUESTS, 100, 0.0)
    lowered.share = share
    lowered.set_most(10)
    assert lowered.share == part


def test_an_answer_that_was_on_its_way_while_the_limit_was_lowered_raises_nothing_above_it() -> None:
    lowered = limit(REQUESTS, 100)
    lowered.set_most(10)
    lowered.take_share(60, 100, 10)
    assert (lowered.most, lowered.share) == (10, 6)
    lowered.take_share(10, 10, 10)
    assert (lowered.most, lowered.share) == (10, 10)
    lowered.take_share(4, 10, 10)
    lowered.take_share(4, 5, 10)
    assert (lowered.most, lowered.share) == (5, 2), "the answer knows it before the table, and others may know neither"
    lowered.take_share(4, 5, 5)
    assert (lowered.most, lowered.share) == (5, 4)
    lowered.take_share(0, 0, 0)
    assert not Account((lowered,)).take(1, 1000.0)
