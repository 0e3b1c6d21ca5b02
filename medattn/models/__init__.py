"""Models for tasks on volumes."""

from medattn.models.monai_weights import encoder_from_monai_vit
from medattn.models.segmentation import SegmentationModel
from medattn.models.windows import predict_probabilities

__all__ = ["SegmentationModel", "encoder_from_monai_vit", "predict_probabilities"]
