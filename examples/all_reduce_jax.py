"""The sum of all_reduce.py with a library of the trade: JAX on CPUs, whose processes meet and reduce through gloo.

pip install "jax[cpu]"        # about 530 MB installed; `make example-jax` does it in an environment of its own
"""

import os

import jax
import jax.numpy as jnp

rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
jax.config.update("jax_cpu_collectives_implementation", "gloo")
jax.distributed.initialize(f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}", size, rank)
print(f"rank {rank} of {size} met the others: {jax.device_count()} devices in all", flush=True)
reduce = jax.pmap(lambda x: jax.lax.psum(x, "ranks"), axis_name="ranks")
for step in range(1, 4):
    total = reduce(jnp.full((1, 100_000), float((rank + 1) * step)))
    expected = float(step * size * (size + 1) // 2)
    if not bool((total == expected).all()):
        raise SystemExit(f"rank {rank}, step {step}: expected {expected}, got {total}")
    print(f"step {step}: the sum over {size} ranks is {expected:g}", flush=True)
