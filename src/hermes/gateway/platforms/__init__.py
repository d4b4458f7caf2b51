"""One file per platform. Each only translates; nothing is imported until its platform is switched on."""
