"""Inspection of programs before compilation."""


def equations(jaxpr):
    """Yield every operation, also inside loops and calls."""
    for equation in jaxpr.eqns:
        yield equation
        for value in equation.params.values():
            inner = getattr(value, "jaxpr", value)
            if hasattr(inner, "eqns"):
                yield from equations(inner)
