// Requests to the listener. What went wrong comes as a Problem, with what to do about it.
let token = "";

export class Problem extends Error {
  constructor(status, reason, detail) {
    super(detail);
    this.status = status;
    this.reason = reason;
  }
  get isSignIn() {
    return this.status === 401;
  }
}

export async function ask(path, options = {}) {
  let response;
  try {
    response = await fetch(`/dashboard/api/${path}`, { credentials: "same-origin", ...options });
  } catch {
    throw new Problem(0, "UNREACHED", "This listener does not answer. Is its process running, and the network up? Trying again.");
  }
  if (response.status === 204) return null;
  let said = null;
  try {
    said = await response.json();
  } catch {
    // Its status says it, below.
  }
  if (!response.ok) throw new Problem(response.status, said?.reason ?? "UNKNOWN", said?.detail ?? `the listener answered ${response.status}`);
  return said;
}

export async function change(path, body) {
  return ask(path, {
    method: "POST",
    headers: { "content-type": "application/json", "x-fencehold-token": token },
    body: JSON.stringify(body),
  });
}

export async function session() {
  const said = await ask("session");
  token = said.token;
  return said;
}

export async function signIn(user, secret) {
  const said = await change("sign-in", { user, secret });
  token = said.token;
  return said;
}

export const query = (params) =>
  new URLSearchParams(Object.entries(params).filter(([, value]) => value !== "" && value != null && value !== false)).toString();
