"""Stands in for pyarrow where a test must not depend on it: s3://BUCKET/PATH lies below $SWARMLINE_STORE_ROOT."""

__version__ = "20.0.0"


class ArrowException(Exception):
    pass
