"""The accelerators of this machine: which there are, how they are, and who uses their memory.

One port (`port.Devices`), behind it NVIDIA's driver, AMD's files in sysfs, GPUs that somebody declared, and a fake.
Called by the agent, always through `bounded`: a driver may hang, and what asks it must not. Nothing here knows a
worker, the control plane or a policy.
"""
