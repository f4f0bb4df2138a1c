"""What a bookie does about records that it may have lost: limbo and its end, and a look at all that rests."""
