"""A package from outside the repository adds kinds of values, a handler of an opcode and checks guards: by public names only."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

PACKAGE = {
    "mykinds/__init__.py": """
        from mykinds import queues, texts  # importing the package registers its kinds
        """,
    "mykinds/texts.py": """
        '''io.StringIO: its text and position are constants.'''
        import io

        from torchjit_vm import extending


        def freeze(real):
            return None if real.closed else (real.getvalue(), real.tell())


        def thaw(content):
            made = io.StringIO()
            restore(made, content)
            return made


        def restore(target, content):
            if content is None:
                target.close()
                return
            text, position = content
            target.seek(0)
            target.truncate()
            target.write(text)
            target.seek(position)


        extending.mirrored(io.StringIO, freeze=freeze, thaw=thaw, restore=restore)
        """,
    "mykinds/queues.py": """
        '''queue.SimpleQueue: holds any values, leaves too.'''
        import queue

        from torchjit_vm import extending


        class QueueValue(extending.Obj):
            __slots__ = ("items",)

            def __init__(self):
                super().__init__(queue.SimpleQueue)
                self.items = []


        def refilled(items):
            made = queue.SimpleQueue()
            for item in items:
                made.put(item)
            return made


        def rebuild(out, self):
            return out.assign(f"{out.runtime(refilled)}([{out.join(self.items)}])")


        @extending.builtin(queue.SimpleQueue)
        def make(domain, args, kwargs):
            return None if args or kwargs else QueueValue()


        @extending.method("put", queue.SimpleQueue)
        def put(domain, args, kwargs):
            if len(args) != 2 or kwargs or not isinstance(args[0], QueueValue):
                return None  # it is not known: it runs for real, after a graph break
            domain.touch(args[0])
            args[0].items.append(args[1])
            return domain.constant(None)


        @extending.method("get", queue.SimpleQueue)
        def get(domain, args, kwargs):
            if len(args) != 1 or kwargs or not isinstance(args[0], QueueValue) or not args[0].items:
                return None
            domain.touch(args[0])
            return args[0].items.pop(0)


        @extending.method("qsize", queue.SimpleQueue)
        def qsize(domain, args, kwargs):
            return domain.constant(len(args[0].items)) if isinstance(args[0], QueueValue) else None


        extending.register(QueueValue, extending.TypeSlots(rebuild=rebuild))
        """,
}
PROGRAM = """
    import io
    import queue
    from fractions import Fraction

    import mykinds
    from torchjit_vm import GuardChecker, Region, RegionCode, capture, extending


    class Expression:
        def __init__(self, text):
            self.text = text


    class Expressions:
        leaf_types = (Expression,)

        def wants(self, obj, path):
            return type(obj) is Fraction

        def input(self, obj, path, capture):
            return Expression(str(path))

        def type_of(self, leaf):
            return Fraction

        def handles(self, function):
            return False

        def call(self, function, args, kwargs, capture):
            return Expression(f"{function.__name__}({', '.join(getattr(a, 'text', repr(a)) for a in args)})")

        def compile_region(self, leaves, capture):
            texts = [leaf.text for leaf in leaves]
            return RegionCode(target=lambda: texts, outputs=tuple(range(len(texts))))


    def captured(function, *slots):
        handler = Expressions()
        made = capture(Region.of_function(function), slots, leaves=handler, compiler=handler, continuations=lambda region: None)
        assert not made.breaks, made.breaks
        holds = GuardChecker(made.guards)
        assert holds(slots) and holds.miss(slots) is None
        return made, holds


    def run(made, *slots):
        return made.target(*(path.resolve(slots) for path in made.gather))


    # A class of C in one call: read, changed, made new, compared by its guards.
    def log(x, out):
        out.write("two")
        other = io.StringIO("abc")
        other.read(1)
        return x * out.tell(), other, out.getvalue(), out.closed


    out = io.StringIO()
    out.write("one")
    made, holds = captured(log, Fraction(1, 2), out)
    result = run(made, Fraction(1, 2), out)
    assert out.getvalue() == "onetwo" and result[0] == "mul(x, 6)" and result[2:] == ("onetwo", False), result
    assert type(result[1]) is io.StringIO and (result[1].getvalue(), result[1].tell()) == ("abc", 1)
    miss = holds.miss((Fraction(1, 2), out))
    assert miss is not None and "out" in str(miss)
    fresh = io.StringIO()
    fresh.write("one")
    assert holds((Fraction(1, 2), fresh)) and not holds((Fraction(1, 2), io.StringIO("one"))) and not holds(())

    # A kind with values of its own.
    def queued(x):
        q = queue.SimpleQueue()
        q.put(x)
        q.put([1])
        q.put(x + 1)
        return q.get(), q, q.qsize()


    made, _ = captured(queued, Fraction(1, 2))
    first, rest, count = run(made, Fraction(1, 2))
    assert (first, rest.get(), rest.get(), rest.qsize(), count) == ("x", [1], "add(x, 1)", 0, 2)

    # A handler of an instruction.
    seen = []


    def noted(usual, vm, frame, argument):
        seen.append(argument.__name__)
        return usual(vm, frame, argument)


    put_back = extending.override_opcode("BINARY_OP", noted)
    captured(queued, Fraction(1, 2))
    put_back()
    captured(queued, Fraction(1, 2))
    assert seen == ["add"], seen
    try:
        extending.override_opcode("NO_SUCH", noted)
    except KeyError:
        print("all right")
    """


def test_a_package_from_outside(tmp_path: Path) -> None:
    for name, text in {**PACKAGE, "program.py": PROGRAM}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(textwrap.dedent(text).lstrip())
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])]),
    }
    done = subprocess.run(
        [sys.executable, "program.py"], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120
    )
    assert (done.returncode, done.stdout) == (0, "all right\n"), done.stderr
