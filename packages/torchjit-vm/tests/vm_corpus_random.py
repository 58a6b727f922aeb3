"""Python's random numbers where the region seeds or makes the generator, and the state that it leaves."""

# mypy: ignore-errors
# ruff: noqa

import random

from vm_corpus import N, program


@program(N(2.0))
def random_seeded(x):
    rng = random.Random(7)
    xs = [x, x + 1, 3, "a"]
    rng.shuffle(xs)
    return xs, rng.choice("abc"), rng.sample(range(100), 3), rng.choices([1, 2, 3], k=4), rng.random(), rng


@program(N(2.0))
def random_module_seed(x):
    random.seed(3)
    b = [1, 2, 3, 4]
    random.shuffle(b)
    return (
        b,
        random.random(),
        random.choice([1, 2]),
        random.sample([x, 1, 2], 2),
        random.choices(["a", "b"], [1, 3], k=5),
        random.gauss(0, 1),
        x + 1,
        random.getrandbits(40),
    )


@program(N(2.0), breaks=1)
def random_save_restore(x):
    s = random.getstate()
    random.seed(5)
    a = random.random()
    random.setstate(s)
    return a, x + 1


@program(N(2.0))
def random_empty_choice(x):
    r = random.Random(0)
    try:
        r.choice([])
    except IndexError as e:
        return str(e), x


@program(N(2.0))
def random_bad_sample(x):
    r = random.Random("s")
    try:
        r.sample([1, 2], 3)
    except ValueError as e:
        return str(e), x, r.random()


@program(random.Random(4), N(1.0))
def random_arg_rng(r, x):
    r.seed(11)
    xs = [1, 2, 3, 4, 5]
    r.shuffle(xs)
    return xs, x + r.random()


@program(N(1.0))
def random_generator_escapes(x):
    made = random.Random(3)
    made.random()
    return [made.random, made.getrandbits][1](9), x


@program(N(1.0), breaks=1)
def random_generator_across_break(x):
    made = random.Random(3)
    made.shuffle([1, 2])
    print(made.getstate()[1][:3])
    return x


@program(N(1.0), breaks=3)
def random_unknown_state(x):
    state = random.getstate()
    random.seed(4)
    a = random.choice("abc")
    random.setstate(state)
    state == random.getstate()
    random.shuffle(["a"])
    return a, x
