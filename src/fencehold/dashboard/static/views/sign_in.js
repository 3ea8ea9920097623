// Signing in: the same users, secrets and tokens as everywhere else.
import { html, useEffect, useRef, useState } from "../vendor/preact-htm.js";
import { signIn } from "../api.js";

export function SignIn({ onDone }) {
  const [how, setHow] = useState("user");
  const [problem, setProblem] = useState("");
  const [isBusy, setBusy] = useState(false);
  const first = useRef(null);
  useEffect(() => first.current?.focus(), [how]);
  const onSubmit = async (event) => {
    event.preventDefault();
    const said = new FormData(event.target);
    setBusy(true);
    setProblem("");
    try {
      await signIn(said.get("user") ?? "", said.get("secret"));
      onDone();
    } catch (found) {
      setProblem(found.status === 401 ? `Not signed in: ${found.message}` : found.message);
    } finally {
      setBusy(false);
    }
  };
  return html`<main class="alone"><form class="card sign-in" onSubmit=${onSubmit}>
    <h1><img src="/dashboard/static/icon.svg" alt="" width="36" height="36" />Fencehold</h1>
    <p class="dim">This service asks who you are. Sign in as you do with <code>fencehold://user:secret@…</code>; you see what that user may. A browser that shows a certificate which this service knows needs none of it.</p>
    <div class="tabs" role="group" aria-label="How to sign in">
      <button type="button" aria-pressed=${how === "user"} onClick=${() => setHow("user")}>User and secret</button>
      <button type="button" aria-pressed=${how === "token"} onClick=${() => setHow("token")}>Token</button>
    </div>
    ${how === "user" && html`<label>User<input name="user" autocomplete="username" required ref=${first} /></label>`}
    <label>${how === "user" ? "Secret" : "Token"}<input name="secret" type="password" autocomplete="current-password" required ref=${how === "token" ? first : null} /></label>
    ${problem && html`<p class="problem" role="alert">${problem}</p>`}
    <button class="button primary" disabled=${isBusy}>${isBusy ? "Signing in …" : "Sign in"}</button>
  </form></main>`;
}
