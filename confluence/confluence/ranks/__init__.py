"""Several processes as one training: how they are started, meet, agree, are watched and stop."""
