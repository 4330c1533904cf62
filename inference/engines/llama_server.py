"""The child process that runs llama.cpp's server: `python -m inference.engines.llama_server JSON`.

A process of its own, because it can crash, because it must not share our interpreter's lock, and because
OpenMP reads its environment once, when it is loaded.
"""

import json
import os
import sys


def main() -> None:
    options = json.loads(sys.argv[1])
    # Without these, waiting OpenMP threads spin: on a busy 2-core machine that costs more than 20x in speed.
    os.environ["OMP_WAIT_POLICY"] = "passive"
    os.environ["GOMP_SPINCOUNT"] = "0"
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = options["model"]
    params.port = 0
    params.api_keys = [os.environ["LLAMA_SERVER_KEY"]]
    params.n_ctx = options["context_window"]
    params.n_parallel = options["parallel"]
    params.n_batch = params.n_ubatch = max(options["prefill_batch"], options["parallel"])
    params.kv_unified = True
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = options["threads"]
    params.cache_ram_mib = options["prompt_cache_mib"]
    params.ctx_shift = False
    params.use_jinja = True
    params.ui = False
    params.endpoint_slots = True
    params.endpoint_metrics = True
    server = xllamacpp.Server(params)
    with os.fdopen(int(os.environ["READY_FD"]), "w") as ready:
        ready.write(server.listening_address + "\n")
    sys.stdin.buffer.read()  # until our parent closes it, or dies
    os._exit(0)


if __name__ == "__main__":
    main()
