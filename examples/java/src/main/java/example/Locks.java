// A client of Fencehold in Java: a session that is kept alive, a lock with its fence, a try, a withdrawal, a loss.
//
//   mvn compile exec:java -Dexec.args="127.0.0.1:7421 [hold]"
package example;

import com.google.gson.Gson;
import com.google.rpc.ErrorInfo;
import fencehold.v1.BreakRequest;
import fencehold.v1.CloseRequest;
import fencehold.v1.Hold;
import fencehold.v1.LockRequest;
import fencehold.v1.LockResponse;
import fencehold.v1.LockServiceGrpc;
import fencehold.v1.Lost;
import fencehold.v1.OpenRequest;
import fencehold.v1.OpenResponse;
import fencehold.v1.SessionRequest;
import fencehold.v1.SessionResponse;
import fencehold.v1.SessionServiceGrpc;
import fencehold.v1.UnlockRequest;
import io.grpc.Grpc;
import io.grpc.InsecureChannelCredentials;
import io.grpc.ManagedChannel;
import io.grpc.StatusRuntimeException;
import io.grpc.protobuf.StatusProto;
import io.grpc.stub.StreamObserver;
import java.io.OutputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import java.util.Optional;
import java.util.UUID;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;

public final class Locks {
  private static final ScheduledExecutorService CLOCK = Executors.newSingleThreadScheduledExecutor();
  private static LockServiceGrpc.LockServiceBlockingStub locks;
  private static SessionServiceGrpc.SessionServiceBlockingStub sessions;

  /** A session of the service, kept alive over a stream. */
  private static final class Session implements StreamObserver<SessionResponse> {
    final String id;
    final CompletableFuture<Lost> lost = new CompletableFuture<>();

    Session(ManagedChannel channel, String client) {
      OpenResponse opened = sessions.open(OpenRequest.newBuilder().setClient(client).setTtlMs(10_000).build());
      id = opened.getSession();
      StreamObserver<SessionRequest> stream = SessionServiceGrpc.newStub(channel).session(this);
      stream.onNext(SessionRequest.newBuilder().setSession(id).build());
      long third = opened.getTtlMs() / 3;
      CLOCK.scheduleAtFixedRate(
          () -> stream.onNext(SessionRequest.getDefaultInstance()), third, third, TimeUnit.MILLISECONDS);
    }

    /** The hold, or nothing if it was not acquired in time. */
    Optional<Hold> lock(String name, int waitMs) {
      LockResponse answer = locks.withDeadlineAfter(30, TimeUnit.SECONDS).lock(LockRequest.newBuilder()
          .setSession(id).setName(name).setWaitMs(waitMs).setRequestId(UUID.randomUUID().toString()).build());
      return answer.hasHold() ? Optional.of(answer.getHold()) : Optional.empty();
    }

    void unlock(Hold hold) {
      locks.unlock(UnlockRequest.newBuilder().setSession(id).setHoldId(hold.getHoldId()).build());
    }

    @Override
    public void onNext(SessionResponse told) {
      if (told.hasLost()) {
        lost.complete(told.getLost());
      }
    }

    @Override
    public void onError(Throwable broken) {
      lost.completeExceptionally(broken);
    }

    @Override
    public void onCompleted() {}
  }

  public static void main(String[] args) throws Exception {
    String address = args.length > 0 ? args[0] : "127.0.0.1:7421";
    Map<?, ?> config =
        new Gson().fromJson(Files.readString(Path.of("../../proto/fencehold/v1/service_config.json")), Map.class);
    @SuppressWarnings("unchecked")
    Map<String, ?> serviceConfig = (Map<String, ?>) config;
    ManagedChannel channel = Grpc.newChannelBuilder(address, InsecureChannelCredentials.create())
        .defaultServiceConfig(serviceConfig).enableRetry().build();
    locks = LockServiceGrpc.newBlockingStub(channel);
    sessions = SessionServiceGrpc.newBlockingStub(channel);
    if (args.length > 1 && args[1].equals("hold")) {
      holdOn(channel, "wallet:java");
    } else {
      tour(channel);
    }
    CLOCK.shutdownNow();
    channel.shutdownNow().awaitTermination(5, TimeUnit.SECONDS);
  }

  /** Holds a name until its input ends, whatever happens to the servers meanwhile. */
  private static void holdOn(ManagedChannel channel, String name) throws Exception {
    Session session = new Session(channel, "holder");
    Hold hold = session.lock(name, 10_000).orElseThrow();
    System.out.println("held " + hold.getFence());
    System.in.transferTo(OutputStream.nullOutputStream());
    boolean isLost = session.lost.isDone();
    if (!isLost) {
      session.unlock(hold);
    }
    System.out.println(isLost ? "lost" : "released");
    sessions.close(CloseRequest.newBuilder().setSession(session.id).build());
  }

  private static void tour(ManagedChannel channel) throws Exception {
    Session ann = new Session(channel, "ann");
    Session bob = new Session(channel, "bob");
    Hold first = ann.lock("wallet:java", 5_000).orElseThrow();
    System.out.println("held " + first.getFence());
    System.out.println("try " + bob.lock("wallet:java", 0).isEmpty());

    // A call whose deadline passes is withdrawn: it is never granted later.
    try {
      locks.withDeadlineAfter(100, TimeUnit.MILLISECONDS)
          .lock(LockRequest.newBuilder().setSession(bob.id).setName("wallet:java").build());
    } catch (StatusRuntimeException late) {
      System.out.println("waited " + late.getStatus().getCode());
    }

    ann.unlock(first);
    Hold second = bob.lock("wallet:java", 5_000).orElseThrow();
    System.out.println("next " + (second.getFence() > first.getFence()));

    locks.break_(BreakRequest.newBuilder().setName("wallet:java").setFence(second.getFence()).build());
    Lost lost = bob.lost.get(30, TimeUnit.SECONDS);
    System.out.println("lost " + (lost.getHold().getFence() == second.getFence()) + " " + lost.getReason());
    try {
      bob.unlock(second);
    } catch (StatusRuntimeException refused) {
      System.out.println("refused " + reason(refused));
    }
    for (Session session : new Session[] {ann, bob}) {
      sessions.close(CloseRequest.newBuilder().setSession(session.id).build());
    }
  }

  /** The stable word of an error, from its details. */
  private static String reason(StatusRuntimeException error) throws Exception {
    for (var detail : StatusProto.fromThrowable(error).getDetailsList()) {
      if (detail.is(ErrorInfo.class)) {
        return detail.unpack(ErrorInfo.class).getReason();
      }
    }
    return "";
  }
}
