"""Minimum cuts, by the maximum flow that saturates them (Dinic, 1970), in whole numbers."""

from __future__ import annotations

__all__ = ["Network"]


class Network:
    """A directed graph with capacities. Nodes are numbered from 0; `cut` answers the smallest source side of a minimum cut."""

    def __init__(self, count: int):
        self.edges: list[list[int]] = [[] for _ in range(count)]  # of each node: numbers of edges; an odd one leads back
        self.target: list[int] = []
        self.room: list[int] = []

    def add(self, a: int, b: int, capacity: int) -> None:
        """An edge from a to b."""
        self.edges[a].append(len(self.target))
        self.edges[b].append(len(self.target) + 1)
        self.target += [b, a]
        self.room += [capacity, 0]

    def cut(self, source: int, sink: int) -> list[bool]:
        """Which nodes are on the side of the source."""
        while True:
            level = self._levels(source)
            if level[sink] < 0:
                return [x >= 0 for x in level]
            self._saturate(source, sink, level)

    def _levels(self, source: int) -> list[int]:
        level = [-1] * len(self.edges)
        level[source] = 0
        queue = [source]
        for a in queue:
            for e in self.edges[a]:
                b = self.target[e]
                if self.room[e] and level[b] < 0:
                    level[b] = level[a] + 1
                    queue.append(b)
        return level

    def _saturate(self, source: int, sink: int, level: list[int]) -> None:
        """Flow along shortest paths until each has a full edge."""
        edges, target, room = self.edges, self.target, self.room
        tried = [0] * len(edges)  # of each node: edges known to lead nowhere
        path: list[int] = []
        a = source
        while True:
            if a == sink:
                least = min([room[e] for e in path])
                for e in path:
                    room[e] -= least
                    room[e ^ 1] += least
                first = next(i for i, e in enumerate(path) if not room[e])
                a = target[path[first] ^ 1]
                del path[first:]
            elif tried[a] < len(edges[a]):
                e = edges[a][tried[a]]
                if room[e] and level[target[e]] == level[a] + 1:
                    path.append(e)
                    a = target[e]
                else:
                    tried[a] += 1
            elif path:
                a = target[path.pop() ^ 1]
                tried[a] += 1
            else:
                return
