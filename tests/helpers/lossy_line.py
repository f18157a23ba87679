"""A second host on this machine, at the end of a bad line: packets take their time, and some are lost.

The host is a network namespace. The line is made of two TUN devices, one here and one there, and of a process that
carries packets from one to the other. Losing a packet is the kernel's problem then, as on a real line: TCP notices and
sends it again. netem does the same, but not every kernel has it. Needs root.
"""

from __future__ import annotations

import ctypes
import fcntl
import heapq
import os
import random
import select
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path
from types import FrameType
from typing import Any, Self

HERE, THERE = "10.211.77.1", "10.211.77.2"
_TUNSETIFF, _TUN_WITHOUT_HEADER, _NEW_NETWORK = 0x400454CA, 0x1001, 0x40000000
_MTU = 1400


def missing() -> str:
    """Why there can be no such line on this machine; empty if there can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    if not Path("/dev/net/tun").exists():
        return "this kernel has no TUN devices"
    if subprocess.run(["unshare", "--net", "true"], capture_output=True, check=False).returncode:
        return "no network namespace can be made here"
    if subprocess.run(["sh", "-c", "command -v ip && command -v nsenter"], capture_output=True, check=False).returncode:
        return "ip and nsenter are not installed"
    return ""


class LossyLine:
    """The line, while the block lasts. `there` runs a command on the other host, which sees this one as HERE."""

    def __init__(self, *, delay: float, loss: float) -> None:
        self._arguments = [str(delay), str(loss)]

    def __enter__(self) -> Self:
        command = [sys.executable, __file__, *self._arguments]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        if self._process.stdout.readline() != "up\n":
            raise OSError("the line did not come up")
        return self

    def there(self, *command: str) -> list[str]:
        return ["nsenter", f"--net=/proc/{self._process.pid}/ns/net", *command]

    def __exit__(self, *_: Any) -> None:
        """Afterwards `passed` and `lost` say how many packets there were."""
        self._process.terminate()
        told, _ = self._process.communicate(timeout=20)
        self.passed, self.lost = map(int, told.split())


def _device(name: str, address: str, peer: str) -> int:
    """A new TUN device in this thread's network namespace: what is sent to the peer can be read from it."""
    device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(device, _TUNSETIFF, struct.pack("16sH14x", name.encode(), _TUN_WITHOUT_HEADER))
    for arguments in (
        ["address", "add", address, "peer", peer, "dev", name],
        ["link", "set", name, "up", "mtu", str(_MTU)],
        ["link", "set", "lo", "up"],
    ):
        subprocess.run(["ip", *arguments], check=True)
    return device


def _carry(delay: float, loss: float) -> None:
    """Carry packets until SIGTERM, each after `delay` seconds; a share `loss` of them never arrives."""
    ends: list[int] = []

    def end(_signal: int, _frame: FrameType | None) -> None:
        print(counts[False], counts[True], flush=True)
        sys.exit()

    counts = {False: 0, True: 0}
    signal.signal(signal.SIGTERM, end)
    ends.append(_device(f"lossy{os.getpid()}", HERE, THERE))
    if ctypes.CDLL(None, use_errno=True).unshare(_NEW_NETWORK):
        raise OSError(ctypes.get_errno(), "unshare")
    ends.append(_device("lossy", THERE, HERE))
    print("up", flush=True)
    coins = random.Random(1)
    waiting: list[tuple[float, int, int, bytes]] = []
    while True:
        pause = max(0.0, waiting[0][0] - time.monotonic()) if waiting else None
        for source in select.select(ends, [], [], pause)[0]:
            packet = os.read(source, 65536)
            lost = coins.random() < loss
            counts[lost] += 1
            if not lost:
                target = ends[1 - ends.index(source)]
                heapq.heappush(waiting, (time.monotonic() + delay, sum(counts.values()), target, packet))
        while waiting and waiting[0][0] <= time.monotonic():
            _, _, target, packet = heapq.heappop(waiting)
            os.write(target, packet)


if __name__ == "__main__":
    _carry(float(sys.argv[1]), float(sys.argv[2]))
