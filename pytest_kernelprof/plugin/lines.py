"""Source lines of a call that was just measured: it can be made again while its arguments live."""

from __future__ import annotations

from typing import TYPE_CHECKING

from _pytest.outcomes import OutcomeException

if TYPE_CHECKING:
    from pytest_kernelprof.measure.runner import Measurement
    from pytest_kernelprof.schema.run import Profile


def with_lines_if(wanted: bool, measurement: Measurement) -> Profile:
    """The profile, with source lines where this rank or another one wants them. It is judged
    without as well: an error of the extra run hides no verdict."""
    attribute, agreement = measurement.attribute, measurement.agreement
    if attribute is None or not any(agreement.gather("source lines", wanted)):
        return measurement.profile
    try:
        return attribute()
    except (Exception, OutcomeException) as error:
        agreement.broke(error)
        return measurement.profile
