// A client of Fencehold in Go: a session that is kept alive, a lock with its fence, a try, a withdrawal, a loss.
//
//	go generate && go run . 127.0.0.1:7421 [hold]
package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"os"
	"time"

	"example.com/fencehold/fenceholdv1"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
)

var (
	locks    fenceholdv1.LockServiceClient
	sessions fenceholdv1.SessionServiceClient
	requests int
)

// Session is a session of the service, kept alive over a stream.
type Session struct {
	id   string
	lost chan *fenceholdv1.Lost
	stop context.CancelFunc
}

func open(ctx context.Context, client string) *Session {
	opened, err := sessions.Open(ctx, &fenceholdv1.OpenRequest{Client: client, TtlMs: 10_000})
	check(err)
	ctx, stop := context.WithCancel(ctx)
	stream, err := sessions.Session(ctx)
	check(err)
	check(stream.Send(&fenceholdv1.SessionRequest{Session: opened.Session}))
	session := &Session{opened.Session, make(chan *fenceholdv1.Lost, 1), stop}
	go func() {
		beat := time.NewTicker(time.Duration(opened.TtlMs/3) * time.Millisecond)
		defer beat.Stop()
		for sequence := uint64(1); ; sequence++ {
			select {
			case <-ctx.Done():
				return
			case <-beat.C:
				_ = stream.Send(&fenceholdv1.SessionRequest{Sequence: sequence})
			}
		}
	}()
	go func() {
		for {
			told, err := stream.Recv()
			if err != nil {
				return
			}
			if lost := told.GetLost(); lost != nil {
				session.lost <- lost
			}
		}
	}()
	return session
}

// lock returns the hold, or nil if it was not acquired in time.
func (session *Session) lock(ctx context.Context, name string, waitMs uint32) *fenceholdv1.Hold {
	requests++
	answer, err := locks.Lock(ctx, &fenceholdv1.LockRequest{
		Session: session.id, Name: name, WaitMs: &waitMs, RequestId: fmt.Sprint("request-", requests)})
	check(err)
	return answer.GetHold()
}

func (session *Session) unlock(ctx context.Context, hold *fenceholdv1.Hold) error {
	_, err := locks.Unlock(ctx, &fenceholdv1.UnlockRequest{Session: session.id, HoldId: hold.HoldId})
	return err
}

func (session *Session) close(ctx context.Context) {
	_, err := sessions.Close(ctx, &fenceholdv1.CloseRequest{Session: session.id})
	check(err)
	session.stop()
}

func main() {
	address := "127.0.0.1:7421"
	if len(os.Args) > 1 {
		address = os.Args[1]
	}
	config, err := os.ReadFile("../../proto/fencehold/v1/service_config.json")
	check(err)
	connection, err := grpc.NewClient(address,
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultServiceConfig(string(config)))
	check(err)
	defer connection.Close()
	locks, sessions = fenceholdv1.NewLockServiceClient(connection), fenceholdv1.NewSessionServiceClient(connection)
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	if len(os.Args) > 2 && os.Args[2] == "hold" {
		holdOn(ctx, "wallet:go")
	} else {
		tour(ctx)
	}
}

// holdOn holds a name until its input ends, whatever happens to the servers meanwhile.
func holdOn(ctx context.Context, name string) {
	session := open(ctx, "holder")
	hold := session.lock(ctx, name, 10_000)
	fmt.Println("held", hold.Fence)
	_, err := io.Copy(io.Discard, os.Stdin)
	check(err)
	select {
	case <-session.lost:
		fmt.Println("lost")
	default:
		check(session.unlock(ctx, hold))
		fmt.Println("released")
	}
	session.close(ctx)
}

func tour(ctx context.Context) {
	ann, bob := open(ctx, "ann"), open(ctx, "bob")
	first := ann.lock(ctx, "wallet:7", 5_000)
	fmt.Println("held", first.Fence)
	fmt.Println("try", bob.lock(ctx, "wallet:7", 0) == nil)

	// A call whose deadline passes is withdrawn: it is never granted later.
	brief, done := context.WithTimeout(ctx, 100*time.Millisecond)
	_, err := locks.Lock(brief, &fenceholdv1.LockRequest{Session: bob.id, Name: "wallet:7"})
	done()
	fmt.Println("waited", status.Code(err))

	check(ann.unlock(ctx, first))
	second := bob.lock(ctx, "wallet:7", 5_000)
	fmt.Println("next", second.Fence > first.Fence)

	_, err = locks.Break(ctx, &fenceholdv1.BreakRequest{Name: "wallet:7", Fence: second.Fence})
	check(err)
	lost := <-bob.lost
	fmt.Println("lost", lost.Hold.Fence == second.Fence, lost.Reason)
	fmt.Println("refused", reason(bob.unlock(ctx, second)))
	ann.close(ctx)
	bob.close(ctx)
}

// reason is the stable word of an error, from its details.
func reason(err error) string {
	for _, detail := range status.Convert(err).Details() {
		if info, ok := detail.(*errdetails.ErrorInfo); ok {
			return info.Reason
		}
	}
	return ""
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
