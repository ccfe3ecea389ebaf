"""What both programs are made of: settings, secrets, processes, signals and Singer messages."""
