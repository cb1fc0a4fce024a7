"""The peers' times for the cases of benches/cases, one line each: group/name, ms, who.

Each module of this folder holds `cases(bench)`, which yields `(name, who, make)`: the case's
name without its group (the module's name), the peer, and a function that makes inputs and
returns the call to measure. What can't be imported is left out.
"""

import argparse
import importlib
import os
import pathlib
import sys
import time


class Bench:
    def __init__(self, args):
        self.gpu = args.device != "cpu"
        self.device = args.device
        self.elements = args.elements
        self.threads = int(os.environ.get("OMP_NUM_THREADS", "0")) or os.cpu_count()
        self.seconds = args.seconds
        try:
            import torch

            torch.backends.cuda.matmul.allow_tf32 = False
            torch.backends.cudnn.allow_tf32 = False
            if not self.gpu:
                torch.set_num_threads(self.threads)
            elif not torch.cuda.is_available():
                torch = None
        except ImportError:
            torch = None
        self.torch = torch

    def time(self, call):
        """Milliseconds of a call in a row of calls: the least of five rows."""

        def wait():
            if self.gpu:
                self.torch.cuda.synchronize()

        def row(calls):
            wait()
            begin = time.perf_counter()
            for _ in range(calls):
                call()
            wait()
            return (time.perf_counter() - begin) / calls

        row(1)
        once = min(row(1), row(1))
        calls = min(max(int(self.seconds / 5 / once), 1), 2000)
        return min([once] + [row(calls) for _ in range(5)]) * 1e3


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("filters", nargs="*")
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--elements", type=int, default=1 << 26)
    parser.add_argument("--seconds", type=float, default=0.2)
    args = parser.parse_args()
    bench = Bench(args)
    folder = pathlib.Path(__file__).parent
    sys.path.insert(0, str(folder))
    for path in sorted(folder.glob("[a-z]*.py")):
        group = path.stem
        try:
            listed = list(importlib.import_module(group).cases(bench))
        except ImportError as error:
            print(f"{group}: {error}", file=sys.stderr)
            continue
        for name, who, make in listed:
            full = f"{group}/{name}"
            if args.filters and not any(f in full for f in args.filters):
                continue
            try:
                print(full, bench.time(make()), who, sep="\t", flush=True)
            except Exception as error:  # one that can't run must not hide the others
                print(f"{full}: {error}", file=sys.stderr)
            if bench.gpu:
                bench.torch.cuda.empty_cache()


main()
