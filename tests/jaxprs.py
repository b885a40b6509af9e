"""Inspection of programs before compilation."""


def equations(jaxpr):
    """Yield every operation, also inside loops and calls."""
    for equation in jaxpr.eqns:
        yield equation
        for value in equation.params.values():
            inner = getattr(value, "jaxpr", value)
            if hasattr(inner, "eqns"):
                yield from equations(inner)


def pairs_of_blocks(jaxpr) -> list[int]:
    """Count the pairs of a block of queries and a block of keys that each attention loop visits."""
    counts = []
    for loop in equations(jaxpr):
        if loop.primitive.name == "scan":
            inside = equations(loop.params["jaxpr"].jaxpr)
            scores = next(e for e in inside if e.primitive.name == "dot_general")
            counts.append(loop.params["length"] * scores.outvars[0].aval.shape[0])
    return counts
