"""The server of one worker, from its start on: until it is ready, then for as long as it answers.

Called by `held` once the process runs, and cancelled when it ends. What an answer means is the business of
`runners.readiness` and `runners.liveness`; what a final failure leads to is `held`'s.
"""

from moorage.agent.account import Account
from moorage.agent.means import Means
from moorage.domain.reasons import Reason
from moorage.runners.liveness import LivenessProbe
from moorage.runners.port import Hosted
from moorage.runners.progress import observe
from moorage.runners.readiness import ReadinessCheck


async def watch_server(account: Account, means: Means, process: Hosted, *, ready: bool) -> Reason | None:
    """Report readiness as it comes and goes.

    Args:
        account: of the worker.
        means: what workers share.
        process: what runs.
        ready: it was seen ready before (it was adopted).

    Returns:
        Why it is given up; None: there is nothing (more) to watch.
    """
    launch = account.launch
    if account.address is None:
        return None
    base = f"http://{account.address}"
    if launch.ready is not None and not ready:
        check = ReadinessCheck(launch.ready, base, means.probes, means.clock, lambda: observe(process))
        final = await check.wait(account.not_ready)
        if final is not None:
            return final
    if not ready:
        account.ready(True)
    if launch.live is None:
        return None
    probe = LivenessProbe(launch.live, base, means.probes, means.clock)
    return await probe.watch(account.not_ready, lambda: account.ready(True))
