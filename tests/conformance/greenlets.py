"""Greenlets, which copy their stacks away, and allocate in between."""

import os
import sys
import threading

import greenlet

os.read(0, 1)


def deep(depth, kept):
    kept.append(bytearray(depth * 10 + 1))
    return deep(depth - 1, kept) if depth else greenlet.getcurrent().parent.switch(len(kept))


def task(number):
    kept = []
    for turn in range(10):
        deep((number + turn) % 40, kept)
        if turn == 7 and number % 10 == 0:
            raise ValueError(number)
    return sum(map(len, kept))


def all_tasks():
    tasks = [greenlet.greenlet(task) for _ in range(100)]
    total = 0
    for _ in range(12):
        for number, one in enumerate(tasks):
            if not one.dead:
                try:
                    total += one.switch(number)
                except ValueError as error:
                    total += error.args[0]
    return total, sum(one.dead for one in tasks)


print(all_tasks())
results = {}
threads = [threading.Thread(target=lambda n=n: results.update({n: all_tasks()})) for n in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(sorted(results.items()))
sys.stdout.flush()
sys.exit(23)
