"""PageRank by power iteration on weighted links; links given as lists, scores added up with np.add.at."""

import numpy as np


def problem(rng, small=True):
    pages, links = (6, 15) if small else (2000, 20000)
    return rng.random(links), rng.integers(0, pages, links), rng.integers(0, pages, links), rng.random(pages)


def run(strength, source, target, interest):
    pages = len(interest)
    weight = np.exp(strength)
    outgoing = np.zeros(pages)
    np.add.at(outgoing, source, weight)
    share = weight / outgoing[source]
    rank = np.ones(pages) / pages
    for _ in range(15):
        new = np.zeros(pages)
        np.add.at(new, target, share * rank[source])
        rank = 0.15 / pages + 0.85 * new
    return pages * np.sum(interest * rank)
