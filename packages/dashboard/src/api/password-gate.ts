// Holds back the operator's requests until the person has confirmed the password. All waiting requests share one
// dialog.
import { Listeners } from '../ui/listeners.ts';

/** `asking`: the dialog is open. `declined`: the person closed it, so polling does not open it again. */
type GateState = 'idle' | 'asking' | 'declined';

/** What the API asks for: the password, or a sign-in at the OpenID provider if the account has no password. */
export type Proof = 'password' | 'sign-in';

class PasswordGate {
  #state: GateState = 'idle';
  #proof: Proof = 'password';
  #answer: PromiseWithResolvers<boolean> | undefined;
  readonly #listeners = new Listeners();

  /**
   * Opens the dialog, and resolves with whether the person confirmed the password. After the person has closed the
   * dialog, a read does not open it again; a change does.
   */
  ask(kind: 'read' | 'change', proof: Proof): Promise<boolean> {
    this.#proof = proof;
    if (this.#state === 'declined' && kind === 'read') return Promise.resolve(false);
    this.#answer ??= Promise.withResolvers();
    this.#set('asking');
    return this.#answer.promise;
  }

  /** Opens the dialog without a request. */
  open = (): void => void this.ask('change', this.#proof);
  confirm = (): void => this.#end(true, 'idle');
  decline = (): void => this.#end(false, 'declined');
  /** A request was not held back, so the person has confirmed the password elsewhere, such as in another tab. */
  pass = (): void => {
    if (this.#state === 'declined') this.#set('idle');
  };
  /** Forgets everything, for example when the person leaves the operator's pages. */
  reset = (): void => this.#end(false, 'idle');

  subscribe = this.#listeners.subscribe;

  state = (): GateState => this.#state;
  proof = (): Proof => this.#proof;

  #end(isConfirmed: boolean, state: GateState): void {
    this.#answer?.resolve(isConfirmed);
    this.#answer = undefined;
    this.#set(state);
  }

  #set(state: GateState): void {
    this.#state = state;
    this.#listeners.call();
  }
}

export const passwordGate = new PasswordGate();
