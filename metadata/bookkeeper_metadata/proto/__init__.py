"""Apache's protobuf messages for values in ZooKeeper; generated code, see the ``.proto`` files."""
