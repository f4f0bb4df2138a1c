"""The page of a cluster for people, and the JSON it is made of; it changes nothing."""
