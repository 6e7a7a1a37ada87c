/** Why an image is not imported: text that ends the sentence "The image is refused: …". */
export class Refusal extends Error {
  override readonly name = 'Refusal';
}

/** Returns bytes of an image, given as Latin-1, in a form that is safe to print. */
export function shown(bytes: string): string {
  const printable = Buffer.from(bytes, 'latin1').toString().replace(/\p{C}/gu, '?');
  return printable.length > 120 ? `${printable.slice(0, 117)}...` : printable;
}
