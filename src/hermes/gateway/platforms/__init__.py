"""One adapter per platform. Each only translates: what must not get lost is the gateway's business."""
