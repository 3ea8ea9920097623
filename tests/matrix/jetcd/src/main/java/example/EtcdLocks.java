// What users of jetcd lock and elect with, unmodified: leases, the lock client, the election client.
package example;

import io.etcd.jetcd.ByteSequence;
import io.etcd.jetcd.Client;
import io.etcd.jetcd.election.CampaignResponse;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

public final class EtcdLocks {
  private static ByteSequence bytes(String text) {
    return ByteSequence.from(text, StandardCharsets.UTF_8);
  }

  private static <T> T got(CompletableFuture<T> answer) throws Exception {
    return answer.get(30, TimeUnit.SECONDS);
  }

  public static void main(String[] args) throws Exception {
    try (Client client = Client.builder().endpoints("http://" + args[0]).build()) {
      long one = got(client.getLeaseClient().grant(30)).getID();
      long two = got(client.getLeaseClient().grant(30)).getID();
      var locks = client.getLockClient();
      var first = got(locks.lock(bytes("jetcd"), one));
      System.out.println("locked " + first.getKey().toString(StandardCharsets.UTF_8).equals("jetcd/" + Long.toHexString(one)));
      System.out.println("again " + got(locks.lock(bytes("jetcd"), one)).getKey().equals(first.getKey()));
      var waiting = locks.lock(bytes("jetcd"), two);
      try {
        waiting.get(300, TimeUnit.MILLISECONDS);
      } catch (TimeoutException late) {
        System.out.println("waits true");
      }
      got(locks.unlock(first.getKey()));
      var second = got(waiting);
      System.out.println("next " + (second.getHeader().getRevision() > first.getHeader().getRevision()));
      got(client.getLeaseClient().revoke(two));
      System.out.println("freed " + got(locks.lock(bytes("jetcd"), one)).getKey().equals(first.getKey()));

      var elections = client.getElectionClient();
      CampaignResponse elected = got(elections.campaign(bytes("jetcd-lead"), one, bytes("first")));
      System.out.println("leads " + value(elections, "jetcd-lead"));
      got(elections.proclaim(elected.getLeader(), bytes("second")));
      System.out.println("says " + value(elections, "jetcd-lead"));
      got(elections.resign(elected.getLeader()));
      got(client.getLeaseClient().revoke(one));
    }
    System.exit(0);
  }

  private static String value(io.etcd.jetcd.Election elections, String name) throws Exception {
    return got(elections.leader(bytes(name))).getKv().getValue().toString(StandardCharsets.UTF_8);
  }
}
