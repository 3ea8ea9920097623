package main

//go:generate protoc -I ../../proto --go_out=. --go_opt=Mfencehold/v1/fencehold.proto=example.com/fencehold/fenceholdv1 --go_opt=module=example.com/fencehold --go-grpc_out=. --go-grpc_opt=Mfencehold/v1/fencehold.proto=example.com/fencehold/fenceholdv1 --go-grpc_opt=module=example.com/fencehold fencehold/v1/fencehold.proto
