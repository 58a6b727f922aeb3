"""Maximum flow and minimum cut on integers: Dinic's algorithm.

Source: E. A. Dinic, "Algorithm for solution of a problem of maximum flow in networks with power estimation" (1970).
"""

from __future__ import annotations

from typing import final

__all__ = ["FlowNetwork"]


@final
class FlowNetwork:
    """A directed network with integer capacities. Vertices are 0 .. n-1.

    Edge `e` and its residual twin `e ^ 1` are stored side by side.

    Args:
        vertices: how many there are.
    """

    def __init__(self, vertices: int) -> None:
        self.vertices = vertices
        self._head: list[list[int]] = [[] for _ in range(vertices)]
        self._to: list[int] = []
        self._capacity: list[int] = []

    def add_edge(self, tail: int, head: int, capacity: int) -> None:
        """Add an edge.

        Raises:
            ValueError: the capacity is negative.
        """
        if capacity < 0:
            raise ValueError(f"capacity {capacity} is negative")
        self._head[tail].append(len(self._to))
        self._to.append(head)
        self._capacity.append(capacity)
        self._head[head].append(len(self._to))
        self._to.append(tail)
        self._capacity.append(0)

    def max_flow(self, source: int, sink: int) -> int:
        """Push as much as possible from source to sink; the residual capacities stay for `sink_side`."""
        total = 0
        while (levels := self._levels(source, sink)) is not None:
            cursor = [0] * self.vertices
            while pushed := self._augment(source, sink, levels, cursor):
                total += pushed
        return total

    def _levels(self, source: int, sink: int) -> list[int] | None:
        levels = [-1] * self.vertices
        levels[source] = 0
        frontier = [source]
        to, capacity, head = self._to, self._capacity, self._head
        while frontier:
            following: list[int] = []
            for vertex in frontier:
                level = levels[vertex] + 1
                for edge in head[vertex]:
                    target = to[edge]
                    if levels[target] < 0 and capacity[edge]:
                        levels[target] = level
                        following.append(target)
            if levels[sink] >= 0:
                return levels
            frontier = following
        return None

    def _augment(self, source: int, sink: int, levels: list[int], cursor: list[int]) -> int:
        """One path in the level graph, by a depth-first walk without recursion; returns what it carries."""
        path: list[int] = []
        vertex = source
        to, capacity, head = self._to, self._capacity, self._head
        while vertex != sink:
            edges, position = head[vertex], cursor[vertex]
            while position < len(edges):
                edge = edges[position]
                if capacity[edge] and levels[to[edge]] == levels[vertex] + 1:
                    break
                position += 1
            cursor[vertex] = position
            if position < len(edges):
                path.append(edges[position])
                vertex = to[edges[position]]
            elif not path:
                return 0
            else:
                levels[vertex] = -1  # a dead end
                vertex = to[path.pop() ^ 1]
                cursor[vertex] += 1
        carried = min(capacity[edge] for edge in path)
        for edge in path:
            capacity[edge] -= carried
            capacity[edge ^ 1] += carried
        return carried

    def sink_side(self, sink: int) -> list[bool]:
        """After `max_flow`: for each vertex, can it still reach the sink? The edges into this set are a minimum cut,

        the one nearest to the sink among those of equal value.
        """
        reached = [False] * self.vertices
        reached[sink] = True
        stack = [sink]
        while stack:
            vertex = stack.pop()
            for edge in self._head[vertex]:
                tail = self._to[edge]
                if not reached[tail] and self._capacity[edge ^ 1]:
                    reached[tail] = True
                    stack.append(tail)
        return reached
