-- Will a customer who ordered in the last 25 days stay away for the next 45?
--
-- Asked on the first of every month. The latest months are for validation and test, and a month lies
-- between the parts, so that no label of one part is still open when the next begins.
WITH questions AS (
    SELECT
        month AS obs_time,
        CASE WHEN month <= TIMESTAMP '2025-05-01' THEN 'train'
             WHEN month <= TIMESTAMP '2025-08-01' THEN 'val'
             ELSE 'test' END AS split
    FROM (SELECT unnest(generate_series(TIMESTAMP '2024-04-01', TIMESTAMP '2025-11-01',
                                        INTERVAL 1 MONTH)) AS month)
    WHERE month NOT IN (TIMESTAMP '2025-06-01', TIMESTAMP '2025-09-01')
)
SELECT
    customers.customer_id,
    questions.obs_time,
    NOT EXISTS (
        SELECT 1 FROM orders
        WHERE orders.customer_id = customers.customer_id
          AND orders.ordered_at > questions.obs_time
          AND orders.ordered_at <= questions.obs_time + INTERVAL 45 DAY
    ) AS churned,
    questions.split
FROM customers
CROSS JOIN questions
WHERE EXISTS (
        SELECT 1 FROM orders
        WHERE orders.customer_id = customers.customer_id
          AND orders.ordered_at > questions.obs_time - INTERVAL 25 DAY
          AND orders.ordered_at <= questions.obs_time
    )
  AND (customers.closed_at IS NULL OR customers.closed_at > questions.obs_time)
