"""The sum of all_reduce.py with torch.distributed and gloo; started by torchrun, which examples/torchrun.yaml does."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
print(f"rank {rank} of {size} met the others", flush=True)
for step in range(1, 4):
    vector = torch.full((100_000,), float((rank + 1) * step))
    dist.all_reduce(vector)
    expected = float(step * size * (size + 1) // 2)
    if not bool((vector == expected).all()):
        raise SystemExit(f"rank {rank}, step {step}: expected {expected}, got {vector.min()} to {vector.max()}")
    print(f"step {step}: the sum over {size} ranks is {expected:g}", flush=True)
dist.destroy_process_group()
