"""A sum over all workers of a gang, each step of which needs all of them: a ring all-reduce over TCP.

Standard library only; what it is told is what torch.distributed would read: MASTER_ADDR, MASTER_PORT, RANK, WORLD_SIZE.
Rank 0 listens there, tells every rank where its neighbour in the ring is, and then all of them pass parts of their
vectors round it, first adding, then handing on: each sends twice its vector, however many there are. The same with a
library of the trade is in all_reduce_jax.py.

    python3 all_reduce.py --steps 5 --length 100000
"""

import argparse
import os
import socket
import struct
import threading
import time
from array import array

CONNECT_FOR_S = 60.0


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--length", type=int, default=100_000)
    options = parser.parse_args()
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    ring = Ring(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), rank, size)
    print(f"rank {rank} of {size} met the others", flush=True)
    for step in range(1, options.steps + 1):
        vector = array("d", [float((rank + 1) * step)]) * options.length
        ring.all_reduce(vector)
        expected = float(step * size * (size + 1) // 2)
        if any(value != expected for value in vector):
            raise SystemExit(f"rank {rank}, step {step}: expected {expected}, got {min(vector)} to {max(vector)}")
        print(f"step {step}: the sum over {size} ranks is {expected:g}", flush=True)


class Ring:
    """Connections to the next rank and from the one before."""

    def __init__(self, host, port, rank, size):
        self.rank, self.size = rank, size
        server = socket.create_server(("", 0))
        address = meet(host, port, rank, size, server.getsockname()[1])
        self.next = connect(*address)
        self.before, _ = server.accept()
        server.close()

    def all_reduce(self, vector):
        """Replace the vector by the sum of all ranks' vectors."""
        bounds = [len(vector) * part // self.size for part in range(self.size + 1)]
        for step in range(2 * (self.size - 1)):
            out, came = (self.rank - step) % self.size, (self.rank - step - 1) % self.size
            part = self.swap(vector[bounds[out] : bounds[out + 1]])
            if step < self.size - 1:
                mine = vector[bounds[came] : bounds[came + 1]]
                part = array("d", [a + b for a, b in zip(mine, part, strict=True)])
            vector[bounds[came] : bounds[came + 1]] = part

    def swap(self, part):
        """Send a part on while the one from before comes in, so that nobody waits for a full buffer."""
        sending = threading.Thread(target=send, args=(self.next, part.tobytes()))
        sending.start()
        got = array("d", receive(self.before))
        sending.join()
        return got


def meet(host, port, rank, size, own_port):
    """Tell rank 0 where this rank listens; the answer is where the next one does."""
    if rank:
        with connect(host, port) as leader:
            send(leader, f"{rank} {own_port}".encode())
            address, _, number = receive(leader).decode().rpartition(" ")
            return address, int(number)
    with socket.create_server(("", port), reuse_port=False) as server:
        ports, links = {0: (host, own_port)}, {}
        while len(ports) < size:
            link, (address, *_) = server.accept()
            other, number = receive(link).decode().split()
            ports[int(other)], links[int(other)] = (address, int(number)), link
        for other, link in links.items():
            with link:
                send(link, "{} {}".format(*ports[(other + 1) % size]).encode())
        return ports[1 % size]


def connect(host, port):
    """Keep trying for a while: the other side may only be about to listen."""
    deadline = time.monotonic() + CONNECT_FOR_S
    while True:
        try:
            return socket.create_connection((host, port))
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def send(link, data):
    link.sendall(struct.pack("!Q", len(data)) + data)


def receive(link):
    (length,) = struct.unpack("!Q", exactly(link, 8))
    return exactly(link, length)


def exactly(link, count):
    data = bytearray()
    while len(data) < count:
        got = link.recv(min(1 << 20, count - len(data)))
        if not got:
            raise SystemExit("another rank has gone")
        data += got
    return bytes(data)


if __name__ == "__main__":
    main()
