"""Errors of fakes are logged but while this project asks them, in this thread."""

from __future__ import annotations

import logging
import threading

from torchjit_torch.quiet_fakes import QUIET_FAKES


class _Seen(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())


def test_only_of_this_thread() -> None:
    handler = _Seen()
    log = logging.getLogger("torch._subclasses.fake_tensor")
    log.addHandler(handler)
    try:
        log.error("before")
        with QUIET_FAKES:
            with QUIET_FAKES:
                log.error("inside")
            log.error("still inside")
            other = threading.Thread(target=lambda: log.error("elsewhere"))
            other.start()
            other.join()
        log.error("after")
    finally:
        log.removeHandler(handler)
    assert handler.messages == ["before", "elsewhere", "after"]
