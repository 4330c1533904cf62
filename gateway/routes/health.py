"""/health/{live,ready,startup} for orchestrators, /metrics for Prometheus."""

from fastapi import APIRouter
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.responses import Response

from gateway.ports import GatewayPorts
from services.common.errors import Overloaded
from services.common.telemetry import ENGINE_RUNNING, ENGINE_UP, ENGINE_WAITING


def router(ports: GatewayPorts) -> APIRouter:
    routes = APIRouter(tags=["health"])
    health = ports.health

    @routes.get("/health/live")
    async def live() -> dict[str, str]:
        return {"status": "live"}

    @routes.get("/health/ready")
    async def ready() -> dict[str, str]:
        if not await health.ready():
            raise Overloaded("Draining." if health.draining else "No engine is ready.", retry_after=5)
        return {"status": "ready"}

    @routes.get("/health/startup")
    async def startup() -> dict[str, str]:
        if not health.started:
            raise Overloaded("Starting.", retry_after=5)
        return {"status": "started"}

    @routes.get("/metrics")
    async def metrics() -> Response:
        for worker, engine in health.engines.items():
            load = await engine.load()
            ENGINE_UP.labels(worker).set(load.healthy)
            ENGINE_RUNNING.labels(worker).set(load.running)
            ENGINE_WAITING.labels(worker).set(load.waiting)
        return Response(generate_latest(), media_type=CONTENT_TYPE_LATEST)

    return routes
