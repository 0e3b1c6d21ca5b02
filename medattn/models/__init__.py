"""Models for tasks on volumes."""

from medattn.models.segmentation import SegmentationModel
from medattn.models.windows import predict_probabilities

__all__ = ["SegmentationModel", "predict_probabilities"]
