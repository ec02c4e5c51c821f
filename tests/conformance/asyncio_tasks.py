"""Coroutines of the language itself, with threads and child processes beside them."""

import asyncio
import os
import subprocess
import sys

os.read(0, 1)


async def task(number):
    kept = []
    for turn in range(20):
        kept.append("x" * (number * turn))
        await asyncio.sleep(0)
    return sum(map(len, kept))


def blocking(number):
    return len(bytes(number * 1000))


async def main():
    print(sum(await asyncio.gather(*(task(number) for number in range(200)))))
    loop = asyncio.get_running_loop()
    print(sum(await asyncio.gather(*(loop.run_in_executor(None, blocking, n) for n in range(50)))))
    child = await asyncio.create_subprocess_exec("echo", "a child", stdout=subprocess.PIPE)
    out, _ = await child.communicate()
    print(out.decode().strip(), child.returncode)


asyncio.run(main())
print(subprocess.run(["sh", "-c", "echo out; echo err >&2; exit 3"], capture_output=True))
pid = os.fork()
if pid == 0:
    os._exit(len([bytearray(n) for n in range(50)]))
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
sys.stdout.flush()
sys.exit(23)
