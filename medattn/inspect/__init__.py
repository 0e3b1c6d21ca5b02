"""Looking into attention: what its weights look like, and what they do and do not explain."""

from medattn.inspect.attribution import (
    Agreement,
    agreement,
    deletion_curve,
    first_order_effects,
    insertion_curve,
    removal_effects,
    rollout,
    weights_vs_removal,
)
from medattn.inspect.cost import EncoderCost, cost_table
from medattn.inspect.statistics import (
    attention_distance_mm,
    effective_rank,
    entropy,
    saturation,
    score_variance,
    sink_mass,
)

__all__ = [
    "Agreement",
    "EncoderCost",
    "agreement",
    "attention_distance_mm",
    "cost_table",
    "deletion_curve",
    "effective_rank",
    "entropy",
    "first_order_effects",
    "insertion_curve",
    "removal_effects",
    "rollout",
    "saturation",
    "score_variance",
    "sink_mass",
    "weights_vs_removal",
]
