"""Looking into programs before they are compiled."""


def equations(jaxpr):
    """Every operation, those inside of loops and calls included."""
    for equation in jaxpr.eqns:
        yield equation
        for value in equation.params.values():
            inner = getattr(value, "jaxpr", value)
            if hasattr(inner, "eqns"):
                yield from equations(inner)
