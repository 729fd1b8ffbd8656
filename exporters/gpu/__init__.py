"""What NVML and GPM say of GPUs."""
