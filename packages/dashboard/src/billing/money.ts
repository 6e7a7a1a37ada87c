// Formats amounts of money and quantities. The API sends them as decimal text. They become numbers only for charts and
// sorting, so no displayed amount loses precision.

const EUR = new Intl.NumberFormat('en-IE', { style: 'currency', currency: 'EUR', maximumFractionDigits: 6 });
const EUR_CELL = new Intl.NumberFormat('en-IE', { style: 'currency', currency: 'EUR', minimumFractionDigits: 6 });
const QUANTITY = new Intl.NumberFormat('en-IE', { maximumFractionDigits: 2 });
const SMALL_QUANTITY = new Intl.NumberFormat('en-IE', { maximumFractionDigits: 6 });

/** `amount`: EUR as text, such as "12.340000". */
export const formatEur = (amount: string): string => EUR.format(amount as `${number}`);

/** For columns of a table: always six decimals, so that the decimal points align. */
export const formatEurCell = (amount: string): string => EUR_CELL.format(amount as `${number}`);

export const formatQuantity = (quantity: string): string =>
  (Number(quantity) < 1 ? SMALL_QUANTITY : QUANTITY).format(quantity as `${number}`);
