"""Serve a model from several threads: requests are gathered into batches of any size, which one compilation serves."""

import argparse
import queue
from concurrent.futures import Future, ThreadPoolExecutor

import torch
from torch import nn

import torchjit

LARGEST = 32  # rows of a batch


class Server:
    """Answers requests of one row each; each of its threads takes as many as wait."""

    def __init__(self, model: nn.Module, example: torch.Tensor, threads: int) -> None:
        self._model = torchjit.compile(model)
        self._waiting: queue.Queue[tuple[torch.Tensor, Future[torch.Tensor]] | None] = queue.Queue()
        self.sizes: set[int] = set()
        with torch.inference_mode():  # all compilations are here, before the first customer
            self._model(example.clone())  # one row: a size of 1 is compiled on its own
            batch = example.repeat(4, 1)
            torchjit.mark_dynamic(batch, 0)  # and any other number of rows
            self._model(batch)
        self._workers = ThreadPoolExecutor(threads)
        self._ends = [self._workers.submit(self._work) for _ in range(threads)]

    def ask(self, row: torch.Tensor) -> torch.Tensor:
        """The model's answer to one row, from any thread."""
        answer: Future[torch.Tensor] = Future()
        self._waiting.put((row, answer))
        return answer.result()

    def close(self) -> None:
        for _ in self._ends:
            self._waiting.put(None)
        self._workers.shutdown()

    def _work(self) -> None:
        while (first := self._waiting.get()) is not None:
            taken = [first]
            while len(taken) < LARGEST:
                try:
                    more = self._waiting.get_nowait()
                except queue.Empty:
                    break
                if more is None:
                    self._waiting.put(None)  # this thread's or another one's turn to end
                    break
                taken.append(more)
            self.sizes.add(len(taken))
            try:
                with torch.inference_mode():
                    answers = self._model(torch.stack([row for row, _ in taken]))
            except Exception as error:
                for _, answer in taken:
                    answer.set_exception(error)
                continue
            for (_, answer), value in zip(taken, answers, strict=True):
                answer.set_result(value)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--small", action="store_true", help="few requests")
    requests, width = (60, 32) if parser.parse_args().small else (5000, 512)
    model = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, 8)).eval()
    rows = torch.randn(requests, width)
    server = Server(model, rows[:1], threads=2)
    with torchjit.set_stance("fail_on_recompile"), ThreadPoolExecutor(16) as customers:
        answers = torch.stack(list(customers.map(server.ask, rows)))
    server.close()
    torch.testing.assert_close(answers, model(rows).detach(), rtol=1e-4, atol=1e-4)
    print(f"{requests} requests in batches of {sorted(server.sizes)} rows, all right")


if __name__ == "__main__":
    main()
