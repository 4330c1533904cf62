"""The simulated engine behind the port over HTTP; GET /counts tells its own counts: `python -m … PORT`."""

import sys

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Mount, Route

from inference.api import create_app
from inference.engines.fan_out import FanOut
from inference.engines.metered import Metered
from inference.engines.simulated import SimulatedEngine
from inference.engines.tool_calling import ToolCalling


def main() -> None:
    engine = SimulatedEngine(ttft=0.01, itl=0.003, length=64)

    async def counts(_: Request) -> JSONResponse:
        return JSONResponse({"prompt": engine.prefilled, "output": engine.generated, "running": engine.running})

    class Server(uvicorn.Server):
        async def startup(self, sockets: object = None) -> None:
            await super().startup()
            print("ready", flush=True)

    port = create_app(FanOut(ToolCalling(Metered(engine))))
    app = Starlette(routes=[Route("/counts", counts), Mount("/", port)])
    Server(uvicorn.Config(app, port=int(sys.argv[1]), log_level="error", lifespan="off")).run()


if __name__ == "__main__":
    main()
