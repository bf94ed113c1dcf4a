"""`/identity/ca`: what whoever verifies a worker's certificate has to trust."""

from fastapi import Response

from moorage.api.deps import Deps
from moorage.api.mounting import under_api

router = under_api(tag="identity")


@router.get("/identity/ca")
async def certificate_authority(deps: Deps) -> Response:
    """The certificate of this installation's authority, PEM. It is no secret: no token is asked for."""
    return Response(await deps.authority.certificate(), media_type="application/x-pem-file")
